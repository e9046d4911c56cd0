-- Return the protocol of the code that migrated this database last: PROTOCOL in ledger/protocol.py.
CREATE OR REPLACE FUNCTION ledger_protocol() RETURNS int LANGUAGE sql IMMUTABLE AS $$ SELECT 2; $$;
