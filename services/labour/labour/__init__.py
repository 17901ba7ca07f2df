"""The Labour service: a labour is planned, begins and ends, and the people who shall be told are on its roster."""
