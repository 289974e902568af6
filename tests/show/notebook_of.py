"""Run cells in a real notebook and print its outputs as JSON: python notebook_of.py folder < cells."""

import json
import sys

import nbclient
import nbformat

cells = [nbformat.v4.new_code_cell(text) for text in json.load(sys.stdin)]
notebook = nbformat.v4.new_notebook(cells=cells)
client = nbclient.NotebookClient(
    notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": sys.argv[1]}}
)
client.allow_errors = True
client.execute()
json.dump([cell["outputs"] for cell in notebook.cells], sys.stdout)
