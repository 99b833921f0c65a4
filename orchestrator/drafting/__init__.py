"""Where drafts come from, and whether they may be used."""
