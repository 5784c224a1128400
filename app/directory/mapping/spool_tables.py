"""The spool's tables, and the statements that join them: SQL alone, without what runs it."""

TABLES = """
CREATE TABLE object (
    number INTEGER PRIMARY KEY,
    set_name TEXT NOT NULL,
    id TEXT NOT NULL,
    place TEXT NOT NULL,
    holds INTEGER NOT NULL,
    value BLOB,
    member BLOB,
    round INTEGER NOT NULL
);
CREATE TABLE name (name TEXT NOT NULL, object INTEGER NOT NULL);
CREATE TABLE member (object INTEGER NOT NULL, name TEXT NOT NULL);
CREATE TABLE pending (object INTEGER PRIMARY KEY);
CREATE TABLE belongs (
    digest TEXT NOT NULL, cursor TEXT NOT NULL, cursor_before TEXT NOT NULL, round INTEGER NOT NULL
);
"""
# holds: whether members are looked up in it; value: of these, what rules ask of it. member: of the others, what
# ``member`` is. round: the read in which it was seen last.

INDEXES = """
CREATE INDEX IF NOT EXISTS object_id ON object (set_name, id);
CREATE INDEX IF NOT EXISTS name_name ON name (name, object);
"""

INDEXES_OF_CHANGES = """
CREATE INDEX IF NOT EXISTS name_object ON name (object);
CREATE INDEX IF NOT EXISTS member_object ON member (object, name);
CREATE INDEX IF NOT EXISTS member_name ON member (name, object);
"""
"""What only changes ask for, which may never come: made when they first do."""

ANY_TWICE = "SELECT 1 FROM object GROUP BY set_name, id HAVING count(*) > 1 LIMIT 1"
TWICE = """
DELETE FROM {} WHERE {} IN (
    SELECT number FROM object WHERE number NOT IN (SELECT max(number) FROM object GROUP BY set_name, id)
)
"""
"""Of an object that was told twice in one read, the last counts."""

AMBIGUOUS = """
CREATE TEMP TABLE ambiguous (name TEXT PRIMARY KEY);
INSERT INTO ambiguous
SELECT name.name FROM name JOIN object ON object.number = name.object
WHERE name.name IN (SELECT name FROM name GROUP BY name HAVING count(*) > 1)
GROUP BY name.name
HAVING count(DISTINCT object.place) > 1 OR count(DISTINCT object.number) > count(DISTINCT object.set_name)
"""
"""Names of two objects, such as a uid that two entries have. They name nobody. One object may be in two sets."""

EDGES = """
CREATE TEMP {} edge AS
SELECT
    member.object AS outer_object, name.object AS inner_object,
    CASE WHEN name.object IS NULL THEN member.name END AS lost
FROM member LEFT JOIN name ON name.name = member.name
WHERE member.name NOT IN (SELECT name FROM ambiguous)
"""
"""Who names whom. After a full read it is worked out for all at once; of changes, only for those who are looked at."""

NESTED = """
CREATE TEMP TABLE nested AS
SELECT DISTINCT outer_object, inner_object FROM edge WHERE inner_object IN (SELECT number FROM object WHERE holds)
"""
NESTED_OF_CHANGES = """
CREATE TEMP TABLE nested AS
SELECT DISTINCT member.object AS outer_object, inner_object.number AS inner_object
FROM object AS inner_object
CROSS JOIN name ON name.object = inner_object.number
CROSS JOIN member ON member.name = name.name
WHERE inner_object.holds AND name.name NOT IN (SELECT name FROM ambiguous)
"""
# In this order: few objects hold members, and many names are members.

MEMBERS = """
WITH RECURSIVE inside (object) AS (
    SELECT :object
    UNION
    SELECT nested.inner_object FROM inside JOIN nested ON nested.outer_object = inside.object
)
SELECT {} FROM object WHERE NOT holds AND number IN (
    SELECT edge.inner_object FROM inside JOIN edge ON edge.outer_object = inside.object
) ORDER BY number
"""

TOUCHED = """
WITH RECURSIVE above (object) AS (
    SELECT member.object FROM touched JOIN member ON member.name = touched.name
    UNION
    SELECT member.object FROM above JOIN name ON name.object = above.object JOIN member ON member.name = name.name
)
INSERT OR IGNORE INTO pending SELECT object FROM above
"""

NOWHERE = "SELECT count(lost), min(lost) FROM edge"

AMBIGUOUS_MEMBERS = "SELECT count(*), min(name) FROM member WHERE name IN (SELECT name FROM ambiguous)"
