"""The pages of the report, each made of records by a function."""

from theses.report.pages.front import front_page
from theses.report.pages.method import method_page
from theses.report.pages.table import table_page
from theses.report.pages.unheld import unheld_page

__all__ = ["front_page", "method_page", "table_page", "unheld_page"]
