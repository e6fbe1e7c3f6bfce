"""`python -m deploy.demo.router`: see the package's description."""

import sys

from deploy.demo.router.run import main

sys.exit(main(sys.argv[1:]))
