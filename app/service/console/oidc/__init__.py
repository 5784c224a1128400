"""Sign-in through an issuer of OpenID Connect: the code flow with PKCE, by Authlib over Usher's own connections."""
