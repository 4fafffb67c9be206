"""`python -m runplan` is the `runplan` command."""

from runplan.interfaces.cli.main import entry

if __name__ == "__main__":
    entry()
