//! Tables as pictures: for each row a group of bars, one for each server, as long as its share of the row's largest figure.

use std::fmt::Write as _;

use super::contenders::{Contenders, Who};
use super::write::Table;

const WIDTH: usize = 860;
const LABEL: usize = 330;
const FIGURE: usize = 70;
const BAR: usize = 15;
const GAP: usize = 14;
const TOP: usize = 64;

fn colour(who: Who) -> &'static str {
    match who {
        Who::Memcached => "#9aa5b1",
        Who::Nuthatch => "#2f6f4f",
        Who::Bare => "#d8dee4",
        Who::Redis => "#b5524a",
    }
}

/// The picture of a table, as SVG.
pub(super) fn bars(table: &Table, contenders: &Contenders) -> String {
    let rows: Vec<_> = table.rows.iter().filter(|row| row.charted).collect();
    let height = TOP + rows.len() * (table.who.len() * BAR + GAP);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"12\" y=\"24\" font-size=\"16\" font-weight=\"bold\" fill=\"#1f2328\">{}</text>\n",
        escape(&table.title),
        escape(&format!("{}{}", table.title, table.chart.map_or("", |chart| chart.caption)))
    );
    let mut x = LABEL;
    for &who in &table.who {
        let name = contenders.name(who);
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"36\" width=\"11\" height=\"11\" fill=\"{}\"/><text x=\"{}\" y=\"46\" fill=\"#1f2328\">{}</text>",
            colour(who),
            x + 16,
            escape(&name)
        );
        x += 16 + 30 + name.len() * 7;
    }
    let mut y = TOP;
    for row in rows {
        let figures: Vec<(Who, f64)> = table
            .who
            .iter()
            .filter_map(|&who| row.median(who).filter(|figure| figure.is_finite()).map(|figure| (who, figure)))
            .collect();
        let largest = figures.iter().map(|(_, figure)| *figure).fold(f64::MIN_POSITIVE, f64::max);
        let middle = y + figures.len() * BAR / 2 + 4;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\" fill=\"#1f2328\">{}</text>",
            LABEL - 10,
            escape(&row.name)
        );
        for (who, figure) in figures {
            let width = (figure / largest * (WIDTH - LABEL - FIGURE) as f64).max(1.0);
            let _ = writeln!(
                svg,
                "<rect x=\"{LABEL}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"11\" fill=\"#57606a\">{figure:.decimals$}</text>",
                BAR - 2,
                colour(who),
                LABEL as f64 + width + 5.0,
                y + BAR - 5,
                decimals = row.decimals,
            );
            y += BAR;
        }
        y += GAP;
    }
    svg + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::Settings;
    use super::super::measure::Samples;
    use super::super::write::Row;
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_share() {
        let settings = Settings { memcached: "true".to_owned(), ..crate::flags::tests::defaults() };
        let contenders = Contenders::find(&settings).unwrap();
        let mut table = Table::new("A & B", "", contenders.both().to_vec());
        let samples = |who, figure| Samples { who, rounds: vec![figure] };
        table.rows.push(Row::new("a < b", 1, vec![samples(Who::Memcached, 10.0), samples(Who::Nuthatch, 5.0)]));
        table.rows.push(Row { charted: false, ..Row::new("hidden", 1, Vec::new()) });
        let svg = bars(&table, &contenders);
        assert!(svg.contains("A &amp; B") && svg.contains("a &lt; b") && !svg.contains("hidden"));
        assert!(svg.contains("width=\"460.0\"") && svg.contains("width=\"230.0\""), "{svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
    }
}
