-- Hooks: functions that another app may replace by a definition of its own.

-- Return whether a question with this digest (`approvals_approval.same`) may soon be answered without people: then its notice can wait.
CREATE OR REPLACE FUNCTION approvals_may_be_answered(p_same text) RETURNS boolean
LANGUAGE sql AS $$
    SELECT false;
$$;
