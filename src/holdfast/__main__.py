"""`python -m holdfast`: the command line."""

from holdfast.faces.cli import start

if __name__ == "__main__":
    start()
