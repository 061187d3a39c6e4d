"""A package of adk-agui-middleware."""
