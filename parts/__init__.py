"""The additions to the core, a module each. `PARTS` of app.py lists them; the core imports none of them."""
