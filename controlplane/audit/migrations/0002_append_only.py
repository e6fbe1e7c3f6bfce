"""PostgreSQL itself refuses to change or remove audit events, their seals, and to empty either table."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION audit_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only: % refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_event_append_only BEFORE UPDATE OR DELETE ON audit_auditevent
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_event_keep_all BEFORE TRUNCATE ON audit_auditevent
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_seal_append_only BEFORE UPDATE OR DELETE ON audit_auditseal
    FOR EACH ROW EXECUTE FUNCTION audit_refuse_change();
CREATE TRIGGER audit_seal_keep_all BEFORE TRUNCATE ON audit_auditseal
    FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse_change();
"""
BACKWARD = """
DROP TRIGGER audit_event_append_only ON audit_auditevent;
DROP TRIGGER audit_event_keep_all ON audit_auditevent;
DROP TRIGGER audit_seal_append_only ON audit_auditseal;
DROP TRIGGER audit_seal_keep_all ON audit_auditseal;
DROP FUNCTION audit_refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_initial")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
