"""The product's settings without the apps of durableagents/contrib that WITHOUT names, with commas; `all` for none."""

import os

from durableagents import settings as product

_LEFT_OUT = {*os.environ["WITHOUT"].split(",")}
globals().update({name: value for name, value in vars(product).items() if name.isupper()})
INSTALLED_APPS = [
    app
    for app in product.INSTALLED_APPS
    if not app.startswith("durableagents.contrib.") or not {"all", app.split(".")[2]} & _LEFT_OUT
]
