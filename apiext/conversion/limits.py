"""Limits of conversion webhooks."""

# Seconds of one call of a conversion webhook. Beyond: 500. Upstream: the same.
CONVERSION_TIMEOUT = 30.0
# Objects of one ConversionReview. Beyond: another review.
REVIEW_OBJECTS = 100
# Bytes of stored objects in one ConversionReview, if it has more than one. Beyond: another review.
REVIEW_BYTES = 1024 * 1024
# ConversionReviews at a time for one list. Beyond: reviews wait.
REVIEWS_AT_ONCE = 4
# Bytes of the response to a ConversionReview. Beyond: the call fails.
REVIEW_ANSWER = 8 * 1024 * 1024
# Requests of one definition that wait for its webhook. Beyond: they are refused.
CONVERSIONS_WAITING = 100
# Objects looked up for a list between two checks of the loop's budget. Beyond: the list yields if the budget is spent.
CONVERTED_UNSEEN = 16
