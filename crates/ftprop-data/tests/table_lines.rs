//! The lines that rows of a table, and what is wrong with them, are said to be in.

mod common;

use common::*;
use ftprop_data::{CsvOptions, CsvTable, TableTransform};

/// The same text with each kind of line end.
fn spellings(text: &str) -> [String; 3] {
    [text.to_owned(), text.replace('\n', "\r\n"), text.replace('\n', "\r")]
}

fn read(bytes: impl AsRef<[u8]>) -> Result<CsvTable, String> {
    CsvTable::read(&Temp::new().write("t.csv", bytes), None).map_err(|error| error.to_string())
}

fn lines(table: &CsvTable) -> Vec<u64> {
    (0..table.rows()).map(|row| table.line(row)).collect()
}

#[test]
fn a_row_is_where_an_editor_shows_it() {
    let cases: [(&str, &[u64]); 10] = [
        ("a,b\n1,x\n2,y\n3,z\n", &[2, 3, 4]),
        ("a,b\n1,x\n2,y", &[2, 3]),
        ("\n\na,b\n1,x\n2,y\n", &[4, 5]),
        ("a,b\n\n\n1,x\n\n2,y\n\n\n", &[4, 6]),
        ("a,b\n1,\"x\n\nw\"\n2,y\n3,\"v\n\"\n4,u\n", &[2, 5, 6, 8]),
        ("\"a\nc\",b\n1,x\n\n2,y\n", &[3, 5]),
        ("1,2\n3,4\n", &[1, 2]),
        ("\n1,2\n\n3,4\n", &[2, 4]),
        ("a,b\n1,\"x\n2,y\n", &[2]),
        ("a,b\n\n1,\"x\n", &[3]),
    ];
    for (text, wanted) in cases {
        for text in spellings(text) {
            assert_eq!(lines(&read(&text).unwrap()), wanted, "{text:?}");
            assert_eq!(lines(&read(format!("\u{feff}{text}")).unwrap()), wanted, "{text:?} with a byte order mark");
            assert_eq!(lines(&read(gzip(text.as_bytes())).unwrap()), wanted, "{text:?} packed");
        }
    }
    // Line ends within a cell are alike too.
    for text in spellings("a,b\n1,\" x\ny \"\n2,z\n") {
        assert_eq!(read(&text).unwrap().cell(0, 1), "x\ny", "{text:?}");
    }
}

/// Texts are read piece by piece, and a line end may lie across two of them.
#[test]
fn a_long_table_is_counted_to_its_end() {
    let text: String = (0..40_000).map(|i| format!("{},{}{}\n", i, "x".repeat(i % 13), ["", "\n"][i % 2])).collect();
    for text in spellings(&text) {
        let table = read(&text).unwrap();
        assert!((0..table.rows()).all(|row| table.line(row) == row as u64 * 3 / 2 + 1), "{:?}", &text[..40]);
        assert_eq!(table.rows(), 40_000);
    }
}

#[test]
fn what_is_wrong_is_said_to_be_where_it_is() {
    for text in spellings("a,b\n\n1,x\n2\n3,y\n") {
        let said = read(&text).unwrap_err();
        assert!(said.contains("line 4: 1 columns, but the first line has 2"), "{text:?}: {said}");
        let text = text.replacen('2', "2,z", 1);
        let broken: Vec<u8> = text.bytes().map(|byte| if byte == b'y' { 0xff } else { byte }).collect();
        let said = read(&broken).unwrap_err();
        assert!(said.contains("line 5: not valid UTF-8"), "{text:?}: {said}");
    }
    // One after the other, and the rows between them.
    let temp = Temp::new();
    let fitted = TableTransform::fit(&read("a,b\n1,x\n2,y\n").unwrap(), 1, &CsvOptions::default(), |_| true).unwrap();
    for text in spellings("a,b\n\n1,x\nmany,x\n\n3\n4,\"y\n\"\n?,x\n5,x\n") {
        let (table, wrong) = fitted.read_sound(&temp.write("new.csv", &text), None).unwrap();
        assert_eq!(lines(&table), [3, 7, 10], "{text:?}");
        assert_eq!(wrong.iter().map(|why| why.line()).collect::<Vec<_>>(), [Some(4), Some(6), Some(9)], "{text:?}");
    }
}
