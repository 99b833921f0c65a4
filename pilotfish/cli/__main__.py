"""`python -m pilotfish.cli`: the command line where its console script is not on the path."""

from pilotfish.cli.main import main

if __name__ == "__main__":
    main()
