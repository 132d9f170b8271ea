"""What makes a release: its files, the trial of them, the stores of released versions, the pinned dependencies."""
