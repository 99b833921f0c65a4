"""Where drafts come from, as the machine sees it: replicas of the draft pool, lookups in this process, the target."""
