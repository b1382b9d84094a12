"""What `import raymega` offers: the names that are promised, and nothing that it happens to import."""

import subprocess
import sys

PUBLIC = ["__version__"]


def test_the_package_has_just_its_public_names():
    code = "import raymega; print(*(n for n in vars(raymega) if n == '__version__' or not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == PUBLIC
