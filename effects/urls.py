"""The addresses of the effect log in a workspace: one path a page, one a verb."""

from __future__ import annotations

from django.urls import path

from effects.views import compensate, contracts, effect, effects, recover, repeat, reviews, stops

urlpatterns = [
    path("effects/", effects.effects, name="effects"),
    path("effects/<str:effect_id>/", effect.effect, name="effect"),
    path("effects/<str:effect_id>/repeat/", repeat.repeat, name="effect_repeat"),
    path("effects/<str:effect_id>/preview/", repeat.preview, name="effect_preview"),
    path("effects/<str:effect_id>/deliver-again/", repeat.deliver_again, name="effect_deliver_again"),
    path("effects/<str:effect_id>/send-as-new/", repeat.send_as_new, name="effect_send_as_new"),
    path("effects/<str:effect_id>/compensate/", compensate.compensate, name="effect_compensate"),
    path("effects/<str:effect_id>/ask/", effect.ask, name="effect_ask"),
    path("reviews/", reviews.reviews, name="reviews"),
    path("reviews/<str:review_id>/", reviews.review, name="review"),
    path("reviews/<str:review_id>/settle/", reviews.settle, name="review_settle"),
    path("reviews/<str:review_id>/confirm/", reviews.confirm, name="review_confirm"),
    path("reviews/<str:review_id>/decline/", reviews.decline, name="review_decline"),
    path("reviews/<str:review_id>/ask/", reviews.ask, name="review_ask"),
    path("scans/", reviews.scan, name="scan"),
    path("recover/", recover.recover, name="recover"),
    path("recover/start/", recover.recover_start, name="recover_start"),
    path("recoveries/", recover.recoveries, name="recoveries"),
    path("recoveries/<str:recovery_id>/", recover.recovery, name="recovery"),
    path("recoveries/<str:recovery_id>/stop/", recover.recovery_stop, name="recovery_stop"),
    path("stops/", stops.stops, name="stops"),
    path("stops/banner/", stops.banner, name="stops_banner"),
    path("stops/set/", stops.stop_set, name="stop_set"),
    path("stops/<str:stop_id>/lift/", stops.stop_lift, name="stop_lift"),
    path("contracts/", contracts.contract_list, name="contracts"),
    path("contracts/<str:effect_type>/", contracts.contract_page, name="contract"),
    path("orders/<str:order_id>/withdraw/", effect.order_withdraw, name="order_withdraw"),
]
