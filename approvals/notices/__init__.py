"""What people are told when they aren't looking: by mail, in a chat, by their browser. Whoever has news for them comes
in through `tell`; faces of approvals come in to read and set."""
