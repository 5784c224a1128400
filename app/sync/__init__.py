"""How is the backend kept in step with the directory?"""
