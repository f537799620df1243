"""python -m intarsia.cli"""

from intarsia.cli import main

main()
