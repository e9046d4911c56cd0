from django.apps import AppConfig


class DurableAgentsConfig(AppConfig):
    name = "durableagents"
    label = "durableagents"
