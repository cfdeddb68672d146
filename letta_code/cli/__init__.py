"""Commands; `wiring` is the only place that puts the objects together."""
