"""What `import raymega` offers: the names that are promised, and nothing that it happens to import."""

import subprocess
import sys

import raymega

PUBLIC = ["__version__", "attach", "launch", "plan", "simulate"]


def test_the_package_promises_just_its_public_names():
    assert raymega.__all__ == PUBLIC


def test_it_has_no_other_names_before_one_is_used():
    code = "import raymega; print(*(n for n in vars(raymega) if n == '__version__' or not n.startswith('_')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == ["__version__"]


def test_every_promised_name_is_there():
    code = f"import raymega; assert all(n == '__version__' or callable(getattr(raymega, n)) for n in {PUBLIC})"
    subprocess.run([sys.executable, "-W", "error", "-c", code], timeout=60, check=True)
