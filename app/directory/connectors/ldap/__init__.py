"""Directories in LDAP, Active Directory among them."""
