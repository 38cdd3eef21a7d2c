"""One policy for many environments that may differ in everything but their shapes, learned without moving a trajectory.

The public names are listed in `__init__.pyi` and imported when they are first used: `import fedpg` does not wait for JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
