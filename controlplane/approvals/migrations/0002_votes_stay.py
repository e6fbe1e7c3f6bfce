"""PostgreSQL itself refuses to change or remove a vote; only the notice that it was voided may be added."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION approvals_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.void_reason = '' AND NEW.void_reason <> ''
        AND to_jsonb(OLD) - 'void_reason' = to_jsonb(NEW) - 'void_reason' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'votes stay as they were cast: % refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER vote_stays BEFORE UPDATE OR DELETE ON approvals_vote
    FOR EACH ROW EXECUTE FUNCTION approvals_refuse_change();
"""
BACKWARD = "DROP TRIGGER vote_stays ON approvals_vote; DROP FUNCTION approvals_refuse_change();"


class Migration(migrations.Migration):
    dependencies = [("approvals", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
