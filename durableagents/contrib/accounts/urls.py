"""URLs of this app's pages."""

from django.urls import path
from django.views.generic import RedirectView

from durableagents.contrib.accounts import views_links, views_own, views_people, views_setup, views_sign_in, views_ways

console_urls = [
    path("login/passkey", views_sign_in.PasskeySignIn.as_view(), name="passkey_sign_in"),
    path("login/code", views_sign_in.Code.as_view(), name="sign_in_code"),
    path("login/second-factor", views_sign_in.FirstFactor.as_view(), name="sign_in_factor"),
    path("login/sso/<slug:provider>", views_sign_in.Begin.as_view(), name="sso"),
    path("login/sso/<slug:provider>/callback", views_sign_in.Callback.as_view(), name="sso_callback"),
    path("account", views_own.Account.as_view(), name="account"),
    path("account/password", views_ways.Password.as_view(), name="password"),
    path("account/second-factor", views_ways.SecondFactor.as_view(), name="second_factor"),
    path("account/second-factor/removals", views_ways.FactorRemovals.as_view(), name="factor_removals"),
    path("account/second-factor/recovery-codes", views_ways.RecoveryCodes.as_view(), name="recovery_codes"),
    path("account/passkeys", views_ways.Passkeys.as_view(), name="passkeys"),
    path("account/passkeys/new", views_ways.NewPasskey.as_view(), name="passkey_new"),
    path("account/passkeys/<int:pk>/names", views_ways.PasskeyNames.as_view(), name="passkey_names"),
    path("account/passkeys/<int:pk>/removals", views_ways.PasskeyRemovals.as_view(), name="passkey_removals"),
    path("account/sign-ins", views_ways.SignInLinks.as_view(), name="sign_in_links"),
    path("account/sign-ins/removals", views_ways.SignInRemovals.as_view(), name="sign_in_removals"),
    path("account/session-ends", views_own.EndSessions.as_view(), name="account_session_ends"),
    path("account/keys", views_own.NewKey.as_view(), name="account_keys"),
    path("account/keys/<int:key_id>/revocations", views_own.RevokeKey.as_view(), name="account_key_revocations"),
    path("people", views_people.People.as_view(), name="people"),
    path("people/invitations", views_people.Invite.as_view(), name="invitations"),
    path(
        "people/invitations/<int:invitation_id>/revocations",
        views_people.RevokeInvitation.as_view(),
        name="invitation_revocations",
    ),
    path("people/<int:user_id>", views_people.Person.as_view(), name="person"),
    path("people/<int:user_id>/session-ends", views_people.EndTheirSessions.as_view(), name="person_session_ends"),
    path("people/<int:user_id>/reset-links", views_people.MakeResetLink.as_view(), name="person_reset_links"),
    path("people/<int:user_id>/own-keys", views_people.AllowOwnKeys.as_view(), name="person_own_keys"),
    path("people/<int:user_id>/roles", views_people.SetRoles.as_view(), name="person_roles"),
    path("people/<int:user_id>/payloads", views_people.LetReadPayloads.as_view(), name="person_payloads"),
    path("people/payloads", views_people.LetRoleReadPayloads.as_view(), name="role_payloads"),
    path("setup", views_setup.Setup.as_view(), name="setup"),
    # These need no sign-in. durableagents/logs.py knows their prefixes.
    path("setup/<str:token>", views_links.Claim.as_view(), name="setup_claim"),
    path("invited/<str:token>", views_links.Invited.as_view(), name="invited"),
    path("reset", views_links.AskReset.as_view(), name="reset"),
    path("reset/<str:whom>/<str:token>", views_links.SetPassword.as_view(), name="reset_set"),
]

# Before the administration's own: its page for changing a password has no second factor and no throttling.
root_urls = [path("admin/password_change/", RedirectView.as_view(pattern_name="password"))]
