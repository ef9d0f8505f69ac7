"""`python -m delaystore`: the command line."""

from delaystore.cli.entry import main

if __name__ == "__main__":
    main()
