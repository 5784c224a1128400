"""Sign-in through an issuer of OpenID Connect: code flow with PKCE, by Authlib over our own outgoing connections."""
