"""Run the notebooks of docs/examples in a Jupyter kernel, and write down what their cells show."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parent / "examples"


def main() -> None:
    """Execute each notebook with an empty store, and keep its outputs but not its times of execution."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        client = NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False)
        with tempfile.TemporaryDirectory() as folder:
            client.execute(env=os.environ | {"MLDYNO_STORE": os.path.join(folder, "records.sqlite")})
        notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
        nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
