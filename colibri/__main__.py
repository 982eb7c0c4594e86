"""`python -m colibri` is the `colibri` program."""

from colibri.cli import main

if __name__ == "__main__":
    main()
