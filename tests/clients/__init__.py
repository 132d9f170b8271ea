"""Real agent clients from npm on a scratch repository, with a stand-in for the model (`make clients`, not in CI)."""
