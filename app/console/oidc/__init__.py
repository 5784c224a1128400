"""Sign-in through an issuer of OpenID Connect: code flow with PKCE, by Authlib along our own way out."""
