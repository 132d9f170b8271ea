"""Tests of the commit log and of the replicas that follow it."""
