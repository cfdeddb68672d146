"""The little repository of the scripted task has a test that fails on purpose: it is not one of ours."""

collect_ignore = ["calculator"]
