"""Settings of the documentation site, which is built and read without a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import theses

project = "Theses"
author = "The theses maintainers"
project_copyright = "The theses maintainers"
version = release = theses.__version__
language = "en"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "docs._ext",
]
exclude_patterns = ["_ext", "**/__pycache__"]
nitpicky = True
# Quotes and hyphens of commands are meant as they stand.
smartquotes = False
highlight_language = "python"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

# Types are in the docstrings, with shapes and units; in a signature they would be said twice.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
# A class shows its members once, each with its docstring, instead of in a table that asks for more pages.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
add_module_names = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "Theses"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
# Summaries of results would be fetched, which browsers refuse for pages that are opened as files.
html_show_search_summary = False
#: Colours and fonts of the pages that ``theses report`` writes; each text has at least 4.5:1 on its ground.
_FONTS = {
    "font-stack": 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif',
    "font-stack--headings": 'Charter, "Bitstream Charter", "Iowan Old Style", Cambria, Georgia, serif',
    "font-stack--monospace": 'ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace',
}
html_theme_options = {
    "light_css_variables": {
        **_FONTS,
        "color-brand-primary": "#1e2124",
        "color-brand-content": "#1b4f8a",
        "color-brand-visited": "#1b4f8a",
        "color-foreground-primary": "#1e2124",
        "color-foreground-secondary": "#5a6068",
        "color-foreground-muted": "#5a6068",
        "color-background-primary": "#fbfaf7",
        "color-background-secondary": "#f2efe8",
        "color-background-border": "#d8d5cc",
        "color-code-background": "#f2efe8",
        "color-api-name": "#1b4f8a",
        "color-api-pre-name": "#5a6068",
        "color-api-overall": "#5a6068",
        "color-sidebar-link-text": "#1e2124",
        "color-sidebar-link-text--top-level": "#1e2124",
        "holds": "#1f6b3f",
        "fails": "#a3262a",
        "undecided": "#7d5300",
        "unjudged": "#6a3d8f",
    },
    "dark_css_variables": {
        **_FONTS,
        "color-brand-primary": "#e6e4df",
        "color-brand-content": "#8fbcf0",
        "color-brand-visited": "#8fbcf0",
        "color-foreground-primary": "#e6e4df",
        "color-foreground-secondary": "#a5abb3",
        "color-foreground-muted": "#a5abb3",
        "color-background-primary": "#16181b",
        "color-background-secondary": "#1e2125",
        "color-background-border": "#474c53",
        "color-code-background": "#1e2125",
        "color-api-name": "#8fbcf0",
        "color-api-pre-name": "#a5abb3",
        "color-api-overall": "#a5abb3",
        "color-sidebar-link-text": "#e6e4df",
        "color-sidebar-link-text--top-level": "#e6e4df",
        "holds": "#7fcf9d",
        "fails": "#f29a9a",
        "undecided": "#e3bd6b",
        "unjudged": "#c9a6ea",
    },
}
