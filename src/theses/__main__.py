"""``python -m theses``: the command line."""

from theses.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
