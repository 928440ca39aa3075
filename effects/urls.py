"""The addresses of the effect log in a workspace."""

from __future__ import annotations

from django.urls import path

from effects.views import effects

urlpatterns = [
    path("effects/", effects.effects, name="effects"),
    path("effects/<str:effect_id>/", effects.effect, name="effect"),
]
