"""`python -m runplan` is the `runplan` command."""

from runplan.cli.main import entry

if __name__ == "__main__":
    entry()
