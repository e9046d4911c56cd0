"""URLs of the console's pages."""

from django.urls import include, path

from approvals.stepup import Asker, askers
from durableagents import views
from durableagents.account_pages import doors, own, people, reference, setup
from durableagents.signin import again, views_door, views_factor, views_passkey, views_sso
from durableagents.urls_apps import of_apps

# Only where pages are served: workers don't load sign-in.
askers[:] = [Asker(again.ask_to_decide, again.answer_to_decide)]

accounts = [
    path("account", own.Account.as_view(), name="account"),
    path("account/password", views_factor.Password.as_view(), name="password"),
    path("account/second-factor", views_factor.SecondFactor.as_view(), name="second_factor"),
    path("account/second-factor/removals", views_factor.FactorRemovals.as_view(), name="factor_removals"),
    path("account/second-factor/recovery-codes", views_factor.RecoveryCodes.as_view(), name="recovery_codes"),
    path("account/passkeys", views_passkey.Passkeys.as_view(), name="passkeys"),
    path("account/passkeys/new", views_passkey.NewPasskey.as_view(), name="passkey_new"),
    path("account/passkeys/<int:pk>/names", views_passkey.PasskeyNames.as_view(), name="passkey_names"),
    path("account/passkeys/<int:pk>/removals", views_passkey.PasskeyRemovals.as_view(), name="passkey_removals"),
    path("account/sign-ins", views_factor.SignInLinks.as_view(), name="sign_in_links"),
    path("account/sign-ins/removals", views_factor.SignInRemovals.as_view(), name="sign_in_removals"),
    path("account/session-ends", own.EndSessions.as_view(), name="account_session_ends"),
    path("account/keys", own.NewKey.as_view(), name="account_keys"),
    path("account/keys/<int:key_id>/revocations", own.RevokeKey.as_view(), name="account_key_revocations"),
    path("reference", reference.Reference.as_view(), name="api_reference"),
    path("people", people.People.as_view(), name="people"),
    path("people/invitations", people.Invite.as_view(), name="invitations"),
    path(
        "people/invitations/<int:invitation_id>/revocations",
        people.RevokeInvitation.as_view(),
        name="invitation_revocations",
    ),
    path("people/<int:user_id>", people.Person.as_view(), name="person"),
    path("people/<int:user_id>/session-ends", people.EndTheirSessions.as_view(), name="person_session_ends"),
    path("people/<int:user_id>/reset-links", people.MakeResetLink.as_view(), name="person_reset_links"),
    path("people/<int:user_id>/own-keys", people.AllowOwnKeys.as_view(), name="person_own_keys"),
    path("people/<int:user_id>/roles", people.SetRoles.as_view(), name="person_roles"),
    path("people/<int:user_id>/payloads", people.LetReadPayloads.as_view(), name="person_payloads"),
    path("people/payloads", people.LetRoleReadPayloads.as_view(), name="role_payloads"),
    path("setup", setup.Setup.as_view(), name="setup"),
]
# Without sign-in. logs.py knows these prefixes.
doors_of_links = [
    path("setup/<str:token>", doors.Claim.as_view(), name="setup_claim"),
    path("invited/<str:token>", doors.Invited.as_view(), name="invited"),
    path("reset", doors.AskReset.as_view(), name="reset"),
    path("reset/<str:whom>/<str:token>", doors.SetPassword.as_view(), name="reset_set"),
]

urlpatterns = [
    path("", views.Overview.as_view(), name="overview"),
    path("sw.js", views.ServiceWorker.as_view(), name="service_worker"),
    path("login", views.SignIn.as_view(), name="login"),
    path("login/demo", views.DemoSignIn.as_view(), name="demo_login"),
    path("login/passkey", views_door.PasskeySignIn.as_view(), name="passkey_sign_in"),
    path("login/code", views_door.Code.as_view(), name="sign_in_code"),
    path("login/second-factor", views_door.FirstFactor.as_view(), name="sign_in_factor"),
    path("login/sso/<slug:provider>", views_sso.Begin.as_view(), name="sso"),
    path("login/sso/<slug:provider>/callback", views_sso.Callback.as_view(), name="sso_callback"),
    path("logout", views.SignOut.as_view(), name="logout"),
    *accounts,
    *doors_of_links,
    path("", include("runs.console.urls")),
    path("", include("approvals.urls")),
    path("", include("ledger.urls")),
    *of_apps("console_urls"),
]
