"""The permission provider: the backend asks who may see what, and is answered from the access model."""
