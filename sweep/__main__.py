"""The command line as `python -m sweep`, for a Python whose scripts are not on the path."""

from sweep.cli.main import main

if __name__ == "__main__":
    main()
