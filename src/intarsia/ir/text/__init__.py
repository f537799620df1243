"""Relay as text, both ways."""

from intarsia.ir.text.files import load_text, save_text
from intarsia.ir.text.parser import parse, parse_expr
from intarsia.ir.text.printer import print_expr, print_module, print_type

__all__ = ["load_text", "parse", "parse_expr", "print_expr", "print_module", "print_type", "save_text"]
