"""Sphinx: how the documentation is built. `make docs` runs it; warnings are errors there."""

import logging
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

from perflex.version import __version__  # noqa: E402

project = "perflex"
author = "the perflex developers"
copyright = author  # noqa: A001
release = version = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_copybutton",
    "generated_reference",
    "joined_names",
    "mathml",
]
exclude_patterns = ["_build", "_ext", "**/.ipynb_checkpoints", "jupyter_execute"]

# Messages and options stand in text as they are typed: "--machine", not a dash.
smartquotes = False

# Docstrings name code in single backticks.
default_role = "code"
napoleon_numpy_docstring = True
napoleon_google_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
# Annotations are shown by autodoc; as text they would be read as markup.
napoleon_attr_annotations = False
autodoc_typehints = "signature"
autodoc_member_order = "groupwise"
python_use_unqualified_type_names = True

myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 4

# Tutorials are notebooks in MyST text. `make docs-run` runs them, on the CPU device that is installed with perflex.
nb_execution_mode = "off"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
# Kernels of notebooks take no settings of the user, and start without a word on how they are reached.
ipython_profile = HERE / "_build" / "ipython" / "profile_default"
ipython_profile.mkdir(parents=True, exist_ok=True)
(ipython_profile / "ipython_kernel_config.py").write_text('get_config().IPKernelApp.log_level = "ERROR"\n')
os.environ["IPYTHONDIR"] = str(ipython_profile.parent)
logging.getLogger("traitlets").setLevel(logging.WARNING)

# Attributes of several classes have one name; which one a docstring means is plain to its reader.
# Notebooks that did not run do not say which language their cells have.
suppress_warnings = ["ref.python", "myst-nb.lexer"]

html_theme = "furo"
html_title = f"perflex {release}"
html_static_path = ["_static"]
html_css_files = ["perflex.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
copybutton_prompt_text = r">>> |\$ "
copybutton_prompt_is_regexp = True

# `make linkcheck`: publishers refuse programs that ask for a DOI's page; that the DOI leads somewhere is enough.
linkcheck_allowed_redirects = {r"https://doi\.org/.*": r"https://.*"}
linkcheck_timeout = 20
linkcheck_workers = 4
