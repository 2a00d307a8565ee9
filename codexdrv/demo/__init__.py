"""A real server with a scripted model, for `codexdrv demo` and the acceptance tests."""
