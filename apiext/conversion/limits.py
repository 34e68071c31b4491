"""Limits of conversion webhooks."""

# Seconds of one call of a conversion webhook. Beyond: the server responds with 500. Upstream: the same.
CONVERSION_TIMEOUT = 30.0
# Objects of one ConversionReview. Beyond: another review is sent.
REVIEW_OBJECTS = 100
# Bytes of stored objects in one ConversionReview of several objects. Beyond: another review is sent.
REVIEW_BYTES = 1024 * 1024
# Concurrent ConversionReviews for one list. Beyond: further reviews wait.
REVIEWS_AT_ONCE = 4
# Bytes of the response to a ConversionReview. Beyond: the conversion fails.
REVIEW_ANSWER = 8 * 1024 * 1024
# Requests that wait for the webhook of one definition. Beyond: the conversions for further requests fail.
CONVERSIONS_WAITING = 100
# Objects of a list that are looked up in the cache of conversions before the list checks its time slice. Beyond: the
# list yields to the event loop if the slice is used up.
LOOKUPS_PER_CHECK = 16
