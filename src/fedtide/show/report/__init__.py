"""The report of a study; `page` puts it together."""
