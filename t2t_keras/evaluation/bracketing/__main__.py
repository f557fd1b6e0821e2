"""The command; a module of its own, since the library has imported the package already."""

import sys

from t2t_keras.evaluation.bracketing import main

if __name__ == "__main__":
    sys.exit(main())
