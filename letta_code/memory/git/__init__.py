"""Memory in Git: the only package that knows pygit2. `repository` is the door; each other module is one thing
that is done with a repository."""
